// Command demo runs batch scripts in containers on a cluster of three controllers and two nodes with
// simulated GPUs, and kills the leader and a node meanwhile. It fails unless every job ends as expected.
//
// With -up it starts the same cluster and leaves it running; -down stops that cluster.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/test/cluster"
)

//go:embed scripts
var scripts embed.FS

func main() {
	cluster.ReapIfAsked()
	up := flag.Bool("up", false, "start a cluster and leave it running")
	down := flag.Bool("down", false, "stop the cluster that -up started")
	dir := flag.String("dir", upDir(), "directory of the cluster of -up; Unix sockets in it need a short path")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *up:
		err = startCluster(ctx, *dir, os.Stdout)
	case *down:
		err = stopCluster(*dir, os.Stdout)
	default:
		err = runDemo(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: error:", err)
		os.Exit(1)
	}
}

// upDir returns the directory of the cluster of make up, one for each user.
func upDir() string { return fmt.Sprintf("/tmp/greylag-%d", os.Getuid()) }

// options returns the options of both clusters.
func options() cluster.Options {
	return cluster.Options{Name: "demo", Controllers: 3, Nodes: 2, GPUs: 4, CPUs: 8, Memory: "4GiB", Log: os.Stdout}
}

// startCluster starts a cluster that outlives this process, unless it is running.
func startCluster(ctx context.Context, dir string, out io.Writer) error {
	left, err := cluster.Attach(dir)
	switch {
	case errors.Is(err, cluster.ErrNone):
	case err != nil:
		return err
	case left.Answers(ctx):
		fmt.Fprintln(out, "The cluster is already running.")
		printExports(out, left.Programs(), left.ConfigFile())
		return nil
	default:
		return fmt.Errorf("the cluster in %s does not answer: make down removes it", dir)
	}
	o := options()
	o.Dir, o.Keep, o.Log = dir, true, out
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	printExports(out, c.Programs(), c.ConfigFile())
	return nil
}

// printExports prints the variables that a shell needs for the cluster.
func printExports(out io.Writer, programs, configuration string) {
	fmt.Fprintf(out, "\nThe cluster is running. For your shell:\n\n  export PATH=%s:$PATH\n  export GREYLAG_CONFIG=%s\n\nmake down stops it.\n", programs, configuration)
}

// stopCluster stops the cluster of startCluster and removes its directory.
func stopCluster(dir string, out io.Writer) error {
	left, err := cluster.Attach(dir)
	switch {
	case errors.Is(err, cluster.ErrNone):
		fmt.Fprintf(out, "no cluster in %s: make up starts one\n", dir)
		return nil
	case err != nil:
		return err
	}
	if err := left.Stop(); err != nil {
		return err
	}
	fmt.Fprintf(out, "stopped the cluster and removed %s\n", dir)
	return nil
}

// runDemo runs every scene of the demo on a new cluster.
func runDemo(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	fmt.Println("== Three controllers, two nodes with 4 simulated GPUs each")
	cloud, err := prepareCloud()
	if err != nil {
		return err
	}
	if cloud != "" {
		defer func() { err = errors.Join(err, os.RemoveAll(cloud)) }()
	}
	o := options()
	o.Burst = cloud
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if !c.Containerized() {
		fmt.Println("   (without root and containerd, tasks are plain processes: no containers, no limits, no image)")
	}
	if err := copyScripts(c.Work); err != nil {
		return err
	}
	s := &stage{ctx: ctx, c: c, cloud: cloud}
	s.run("gctl", "cluster", "status")
	s.run("gctl", "info")
	for _, scene := range []func(){s.gpu, s.array, s.gang, s.planned, s.image, s.limits, s.cancelled, s.failover, s.longJob, s.burst} {
		if s.err == nil {
			scene()
		}
	}
	if s.err != nil {
		return fmt.Errorf("%w\n%s", s.err, c.LogTails(1500))
	}
	fmt.Println("\n== Every job ended as expected.")
	return nil
}

func copyScripts(dir string) error {
	entries, err := scripts.ReadDir("scripts")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := scripts.ReadFile("scripts/" + entry.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, entry.Name()), text, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeImage creates an OCI image in a file, without a registry.
func writeImage(dir string) error {
	unix, err := ociimage.Unix()
	if err != nil {
		return err
	}
	_, err = ociimage.WriteFile(filepath.Join(dir, "small.tar"), unix)
	return err
}
