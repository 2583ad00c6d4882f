package e2e

import "os"

// everyFault reports whether the long tests of faults run too.
func everyFault() bool { return os.Getenv("GREYLAG_FAULTS") == "all" }
