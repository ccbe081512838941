"""What a REST request says, before any catalog is asked: the grammar of the dialect; pure."""
