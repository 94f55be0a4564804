"""Benchmarks: one module each, with a ``main(argv)``. ``python -m benchmarks`` lists and runs them."""
