"""Spark finds the data source `headrace` by this module's name. It must never raise: one module that does hides all."""

try:
    from headrace.spark.data_source import HeadraceDataSource as DefaultSource
except ImportError:  # an older PySpark, or one without what the extra `spark` brings
    pass
else:
    __all__ = ["DefaultSource"]
