import sys

sys.exit("this is a script")
