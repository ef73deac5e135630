"""The test behind each claim: functions from evidence to verdict."""
