"""Jobs on Spark that come with Headrace: `lake` writes topics to a table, `verify` looks at all replicas of a topic."""
