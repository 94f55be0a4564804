"""Several people on one server, each with a home of their own."""
