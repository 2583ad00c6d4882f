// Command demo shows the main job on an embedded cluster: three controllers, two
// nodes with simulated GPUs, real batch scripts in real containers, and a leader
// that is killed meanwhile. Every job must end as it should, or the demo fails.
//
// With -up it starts the same cluster and leaves it running, -down ends that.
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
	down := flag.Bool("down", false, "end the cluster that -up started")
	dir := flag.String("dir", upDir(), "where the cluster of -up lies; the path must be short")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *up:
		err = leave(ctx, *dir, os.Stdout)
	case *down:
		err = end(*dir, os.Stdout)
	default:
		err = show(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: error:", err)
		os.Exit(1)
	}
}

// upDir is where make up puts its cluster: one for each user.
func upDir() string { return fmt.Sprintf("/tmp/greylag-%d", os.Getuid()) }

// options are those of both clusters.
func options() cluster.Options {
	return cluster.Options{Name: "demo", Controllers: 3, Nodes: 2, GPUs: 4, CPUs: 8, Memory: "4GiB", Log: os.Stdout}
}

// leave starts a cluster that outlives this process, unless it runs already.
func leave(ctx context.Context, dir string, out io.Writer) error {
	left, err := cluster.Attach(dir)
	switch {
	case errors.Is(err, cluster.ErrNone):
	case err != nil:
		return err
	case left.Answers(ctx):
		fmt.Fprintln(out, "It runs already.")
		tell(out, left.Programs(), left.ConfigFile())
		return nil
	default:
		return fmt.Errorf("in %s is what is left of a cluster that does not answer: make down removes it", dir)
	}
	o := options()
	o.Dir, o.Keep, o.Log = dir, true, out
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	tell(out, c.Programs(), c.ConfigFile())
	return nil
}

// tell is what a shell needs for the cluster.
func tell(out io.Writer, programs, configuration string) {
	fmt.Fprintf(out, "\nThe cluster runs. For your shell:\n\n  export PATH=%s:$PATH\n  export GREYLAG_CONFIG=%s\n\nmake down ends it.\n", programs, configuration)
}

func end(dir string, out io.Writer) error {
	left, err := cluster.Attach(dir)
	switch {
	case errors.Is(err, cluster.ErrNone):
		fmt.Fprintf(out, "No cluster is in %s: make up starts one.\n", dir)
		return nil
	case err != nil:
		return err
	}
	if err := left.Stop(); err != nil {
		return err
	}
	fmt.Fprintf(out, "The cluster in %s has ended, and nothing of it is left.\n", dir)
	return nil
}

// show runs the demo.
func show(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	fmt.Println("== Three controllers, two nodes with 4 simulated GPUs each")
	c, err := cluster.Start(ctx, options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if !c.Containerized() {
		fmt.Println("   (without root and containerd tasks run as plain processes: no containers, no limits, no image)")
	}
	if err := copyScripts(c.Work); err != nil {
		return err
	}
	s := &stage{ctx: ctx, c: c}
	s.act("gctl", "cluster", "status")
	s.act("gctl", "info")
	for _, scene := range []func(){s.gpu, s.array, s.gang, s.planned, s.image, s.limits, s.cancelled, s.failover} {
		if s.err == nil {
			scene()
		}
	}
	if s.err != nil {
		return fmt.Errorf("%w\n%s", s.err, c.LogTails(1500))
	}
	fmt.Println("\n== Every job ended as it should.")
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

// image writes an OCI image that is made here, not pulled.
func image(dir string) error {
	unix, err := ociimage.Unix()
	if err != nil {
		return err
	}
	_, err = ociimage.WriteFile(filepath.Join(dir, "small.tar"), unix)
	return err
}
