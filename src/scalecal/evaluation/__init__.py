"""From cases and answers to facts: numbers, verdict, recommendation, words, gates and the folder."""
