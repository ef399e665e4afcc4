"""Names the clients' errors for what to do about them; the ledger and the admin clients name their own."""
