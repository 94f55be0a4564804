"""The HTTP server: who may ask, the API of the loop and the web page, in one ASGI app over ``inference``."""
