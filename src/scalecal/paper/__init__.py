"""The SCALE paper: its tables, figures and claims, made again and judged; nothing else imports it."""
