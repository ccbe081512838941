"""The algebra both APIs compile to, and its one SQL generator."""
