"""What carries asks and answers: in this process, or (later) over Flower."""
