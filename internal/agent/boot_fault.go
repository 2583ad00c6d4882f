//go:build bootfault

package agent

import "os"

// bootFile returns the file with the identity of this boot: the environment names it, so that a test can let a node
// boot.
func bootFile() string { return os.Getenv("GREYLAG_BOOT_ID") }
