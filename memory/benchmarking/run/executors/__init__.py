"""Where rounds run. An executor takes jobs and gives back outcomes, one process a job."""
