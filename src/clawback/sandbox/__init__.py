"""Where what a model wrote is run: a ladder of isolations behind one interface."""
