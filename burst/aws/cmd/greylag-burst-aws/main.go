// Command greylag-burst-aws rents nodes from Amazon EC2 for a controller, which calls it with one word, such as list.
// docs/burst-aws.md describes its configuration.
//
// It is a module of its own, since the AWS SDK takes minutes to compile. The replace directive of go.mod takes the types
// of the contract, and the reader of configuration files, from the tree that the program is built in: it is always built
// with the contract of the same commit, and needs no published module of Greylag.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/greylag/greylag/burst/aws/internal/provider"
	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/version"
)

// configEnv names the configuration file if no flag does.
const configEnv = "GREYLAG_BURST_AWS_CONFIG"

func main() {
	config := flag.String("config", cmp.Or(os.Getenv(configEnv), settings.DefaultPath), "configuration `FILE`")
	printVersion := flag.Bool("version", false, "print the version")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: greylag-burst-aws [-config FILE] %s|%s|%s|%s|%s|%s\n\nA question is read from standard input, and its answer written to standard output.\n\n",
			burst.CallOffers, burst.CallLaunch, burst.CallList, burst.CallTerminate, burst.CallConsole, burst.CallValidate)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *printVersion {
		fmt.Println("greylag-burst-aws", version.Version)
		return
	}
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(provider.Run(context.Background(), *config, flag.Arg(0), os.Stdin, os.Stdout, os.Stderr))
}
