"""What spark-submit is given: a script that runs `headrace pipeline` with the arguments behind it.

spark-submit --master spark://host:7077 "$(python -m headrace.cli.submit --path)" lake orders --to /data/orders
"""

import sys

from headrace.cli import main

if __name__ == "__main__":
    if sys.argv[1:] == ["--path"]:
        print(__file__)
    else:
        sys.argv[1:1] = ["pipeline"]
        sys.exit(main())
