// Package version knows which version of Greylag a program was built from. It
// decides nothing.
package version

// Version is set by the linker; see the Makefile.
var Version = "dev"
