"""What both APIs ask of the database: the algebra of reads and writes, and the one generator of its SQL."""
