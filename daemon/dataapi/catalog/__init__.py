"""What a database holds and how its directives, grants and names read."""
