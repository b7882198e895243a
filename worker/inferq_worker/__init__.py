"""What answers: models and the workers that run them."""
