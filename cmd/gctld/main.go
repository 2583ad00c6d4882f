// Command gctld is a controller of the cluster: it keeps the replicated state,
// answers the API, and decides when and where jobs run.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/greylag/greylag/internal/gctld"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := gctld.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
