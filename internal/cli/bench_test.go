package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gqueue"
	"github.com/greylag/greylag/internal/cli/ui"
)

// built returns a program as it is installed: static, without symbols.
func built(b *testing.B, name string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), name)
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/greylag/greylag/cmd/"+name)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

func start(b *testing.B, path string, env []string, args ...string) {
	b.Helper()
	command := exec.Command(path, args...)
	command.Env = append(os.Environ(), env...)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStart measures one process from fork to exit, without a call to a cluster, next to a
// program of the system.
func BenchmarkStart(b *testing.B) {
	for _, c := range [][]string{{"gsubmit", "--version"}, {"gqueue", "--version"}, {"gcancel", "--version"}, {"gctl", "version"}} {
		path := built(b, c[0])
		b.Run(c[0], func(b *testing.B) {
			for b.Loop() {
				start(b, path, nil, c[1:]...)
			}
		})
	}
	b.Run("true", func(b *testing.B) {
		for b.Loop() {
			start(b, "/bin/true", nil)
		}
	})
}

// BenchmarkSubmit measures gsubmit as a whole: process, script, token from gauthd, TLS 1.3
// handshake, one call to a controller in memory that answers at once.
func BenchmarkSubmit(b *testing.B) {
	path, dir := built(b, "gsubmit"), b.TempDir()
	if _, err := serve(b, dir); err != nil {
		b.Fatal(err)
	}
	script := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#GSUB --gpus=1 --time=10\ntrue\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		start(b, path, []string{"GREYLAG_CONFIG=" + filepath.Join(dir, "client.toml")}, "--quiet", script)
	}
}

// BenchmarkQueue measures gqueue with 100,000 pending jobs, without the start of its process: one
// call over TLS, pages of two jobs replaced by pages of 5,000.
func BenchmarkQueue(b *testing.B) {
	dir := b.TempDir()
	w, err := serve(b, dir)
	if err != nil {
		b.Fatal(err)
	}
	w.pages = pendingPages(100_000, 5000)
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // as cmd/gqueue does
	b.Setenv("GREYLAG_CONFIG", filepath.Join(dir, "client.toml"))
	for _, c := range []struct {
		name string
		args []string
	}{{"table", nil}, {"squeue-format", []string{"-h", "-o", "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"}}, {"json", []string{"--json"}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				p := &ui.Process{Program: "gqueue", Args: c.args, Stdout: io.Discard, Stderr: os.Stderr, Now: time.Now, Dial: dial}
				if status := gqueue.Run(context.Background(), p); status != 0 {
					b.Fatalf("exit status %d", status)
				}
			}
		})
	}
}

// pendingPages returns answers with pending jobs, as on a busy cluster.
func pendingPages(jobs, each int) []*greylagv1.ListJobsResponse {
	var all []*greylagv1.ListJobsResponse
	for i := range jobs {
		if i%each == 0 {
			all = append(all, &greylagv1.ListJobsResponse{AsOf: &greylagv1.AsOf{Index: 7}})
		}
		page := all[len(all)-1]
		page.Jobs = append(page.Jobs, &greylagv1.Job{
			Id: uint64(i + 1), Ref: fmt.Sprint(i + 1), Name: fmt.Sprintf("job-%d", i%100), User: fmt.Sprintf("user%d", i%50), Partition: "main",
			Qos: "standard", State: greylagv1.JobState_JOB_STATE_PENDING, Reason: greylagv1.Reason_REASON_PRIORITY, Request: &greylagv1.Request{Nodes: 1, Gpus: 1},
			TimeLimit: durationpb.New(time.Hour), Submitted: timestamppb.New(time.Unix(1_790_000_000, 0)),
		})
	}
	return all
}
