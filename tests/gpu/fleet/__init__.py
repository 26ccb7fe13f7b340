"""What collecting costs on a real GPU: `python -m tests.gpu.fleet.loss FOLDER`; torch and numpy alone are needed."""
