"""The Draftmill operator: turns runs into plans, servers, workers and a finish, and reports on them."""
