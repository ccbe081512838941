"""The algebra of reads and writes that both APIs compile to, and the generator of its SQL."""
