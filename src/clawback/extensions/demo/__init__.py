"""The whole loop, on the embedded model or a real one, with a simulated person or a real one; and the text, tastes and training of that model."""

from clawback.extensions.demo.loop import Demo, Look, Round

__all__ = ["Demo", "Look", "Round"]
