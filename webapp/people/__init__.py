"""People: who may sign in, how (password, second factor, single sign-on), their sessions, invitations."""
