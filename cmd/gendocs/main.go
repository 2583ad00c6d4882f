// Command gendocs writes the manual pages and shell completions of the programs in a folder. It is
// not installed.
//
//	gendocs -bin bin -docs docs/config -o bin
//
// writes man/man{1,5,8} and completions/{bash,zsh,fish} below bin. Options come from the programs'
// own help and keys from the configuration reference. The date of the pages is SOURCE_DATE_EPOCH;
// without it they have none. The same programs and reference give the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	var g generator
	flag.StringVar(&g.bin, "bin", "bin", "`folder` of the programs")
	flag.StringVar(&g.docs, "docs", "docs/config", "`folder` of the configuration reference")
	flag.StringVar(&g.out, "o", "bin", "`folder` to write to")
	flag.Parse()
	if seconds := os.Getenv("SOURCE_DATE_EPOCH"); seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			fail(fmt.Errorf("SOURCE_DATE_EPOCH: %w", err))
		}
		g.date = time.Unix(n, 0)
	}
	if err := g.run(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "gendocs: error:", err)
	os.Exit(1)
}
