"""What the operator and the jobs both import: resource types, job config, progress, record, manifest. No I/O."""
