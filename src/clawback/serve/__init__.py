"""The HTTP server: a recording proxy, the live model, the API and the web page, in one ASGI app."""
