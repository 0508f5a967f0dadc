"""What a job reads in the target model's folder."""
