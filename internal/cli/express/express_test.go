package express

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/jobscript"
)

// answering serves a socket as gauthd does, with one answer, and names it in the commands'
// configuration. Requests come out of the channel.
func answering(t *testing.T, answer http.HandlerFunc) <-chan *greylagv1.SubmitJobsRequest {
	t.Helper()
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "client.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "auth_socket = %q\n", socket), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.ClientEnv, file)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	requests := make(chan *greylagv1.SubmitJobsRequest, 10)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := &greylagv1.SubmitJobsRequest{}
		if err != nil || proto.Unmarshal(body, request) != nil || r.URL.Path != "/greylag.v1.JobService/SubmitJobs" {
			t.Errorf("%s: %d bytes, %v", r.URL.Path, len(body), err)
		}
		requests <- request
		answer(w, r)
	})}
	go server.Serve(listener) // ends with Close
	t.Cleanup(func() { server.Close() })
	return requests
}

// stored answers that job 7 is stored.
func stored(w http.ResponseWriter, _ *http.Request) {
	body, _ := proto.Marshal(&greylagv1.SubmitJobsResponse{Index: 3, Jobs: []*greylagv1.Submitted{{Id: 7}}})
	w.Header().Set("Content-Type", "application/proto")
	_, _ = w.Write(body)
}

func run(args ...string) (out, request string, done bool) {
	var b bytes.Buffer
	request, done = Command{Args: args, Environ: []string{"PATH=/bin"}, Stdout: &b, Stderr: &b, Now: time.Now()}.Run()
	return b.String(), request, done
}

func TestPlainSubmissions(t *testing.T) {
	requests := answering(t, stored)
	script := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#GSUB --gpus=2\necho\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		out  string
		name string
	}{
		{[]string{"--wrap", "true"}, "submitted job 7\n", "wrap"},
		{[]string{"--parsable", "--name", "x", "--wrap", "true"}, "7\n", "x"},
		{[]string{"--quiet", script, "one", "two"}, "", "job.sh"},
	} {
		out, request, done := run(c.args...)
		if !done || out != c.out {
			t.Fatalf("%q: %q, %v", c.args, out, done)
		}
		got := <-requests
		if got.RequestId != request || len(request) != 32 || got.Jobs[0].Name != c.name {
			t.Errorf("%q: %v", c.args, got)
		}
		if c.name == "job.sh" && (got.Jobs[0].Request.Gpus != 2 || strings.Join(got.Jobs[0].Args, " ") != "one two") {
			t.Errorf("%q: %v", c.args, got)
		}
	}
	if out, _, done := run("--version"); !done || !strings.HasPrefix(out, "gsubmit ") {
		t.Errorf("version: %q", out)
	}
}

// TestPlainSubmissionsOfSbatch checks the answers, defaults and limits of the fast path under the name
// sbatch.
func TestPlainSubmissionsOfSbatch(t *testing.T) {
	requests := answering(t, stored)
	sbatch := func(args ...string) (string, bool) {
		var b bytes.Buffer
		_, done := Command{Args: args, Environ: []string{"PATH=/bin", "GSUB_TIME=7"}, Stdout: &b, Stderr: &b, Now: time.Now(), Slurm: true}.Run()
		return b.String(), done
	}
	for out, args := range map[string][]string{
		"Submitted batch job 7\n": {"--hint=nomultithread", "-a", "0-3", "--wrap", "true"},
		"7\n":                     {"--parsable", "-a0-3", "--wrap", "true"},
	} {
		got, done := sbatch(args...)
		if !done || got != out {
			t.Fatalf("%q: %q, %v", args, got, done)
		}
		if spec := (<-requests).Jobs[0]; filepath.Base(spec.Output) != "slurm-%A_%a.out" || spec.TimeLimit != nil {
			t.Errorf("%q: output %s, time limit %v", args, spec.Output, spec.TimeLimit)
		}
	}
	if out, done := sbatch("-V"); !done || out != "slurm 24.11.0\n" {
		t.Errorf("version: %q", out)
	}
	for _, args := range [][]string{{"-M", "all", "--wrap", "true"}, {"--get-user-env", "--wrap", "true"}, {"--container", "x", "--wrap", "true"}} {
		if out, done := sbatch(args...); done || out != "" {
			t.Errorf("%q: %q, %v", args, out, done)
		}
	}
}

// TestTellsWhatWasSetAside checks that the lien is printed on standard error, except with --quiet.
func TestTellsWhatWasSetAside(t *testing.T) {
	answering(t, func(w http.ResponseWriter, _ *http.Request) {
		body, _ := proto.Marshal(&greylagv1.SubmitJobsResponse{Index: 3, Jobs: []*greylagv1.Submitted{{Id: 7}}, Lien: 80_500_000})
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(body)
	})
	for want, args := range map[string][]string{
		"gsubmit: note: 80.50 credits are set aside for the job\nsubmitted job 7\n": {"--wrap", "true"},
		"gsubmit: note: 80.50 credits are set aside for the job\n7\n":               {"--parsable", "--wrap", "true"},
		"": {"--quiet", "--wrap", "true"},
	} {
		if out, _, done := run(args...); !done || out != want {
			t.Errorf("%q: %q, %v", args, out, done)
		}
	}
}

// TestLeavesTheRest checks that a submission that is not plain is passed on before anything is
// sent.
func TestLeavesTheRest(t *testing.T) {
	requests := answering(t, stored)
	for _, args := range [][]string{
		{"--help"}, {"--zzz"}, {}, {"-"}, {"/nonexistent/job.sh"}, {"/dev/null"}, {"--wrap", ""}, {"--wrap", "true", "operand"},
		{"--begin", "now+1hour", "--wrap", "true"}, {"--time", "bad", "--wrap", "true"},
	} {
		if out, request, done := run(args...); done || request != "" || out != "" {
			t.Errorf("%q: %q, %q, %v", args, out, request, done)
		}
	}
	for _, name := range jobscript.CommandOptions() { // --quote submits nothing
		args := []string{"--" + name, "--wrap", "true"}
		if slices.Contains([]string{"wrap", "parsable", "quiet", "version"}, name) {
			continue
		}
		if out, request, done := run(args...); done || request != "" || out != "" {
			t.Errorf("%q: %q, %q, %v", args, out, request, done)
		}
	}
	if len(requests) > 0 {
		t.Errorf("%v was sent", <-requests)
	}
}

// TestLeavesWhatWentWrong checks that the request ID is passed on.
func TestLeavesWhatWentWrong(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", http.StatusBadRequest) },
		"cut":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"another": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
		"chunked": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			stored(w, r)
		},
		"warned": func(w http.ResponseWriter, _ *http.Request) {
			body, _ := proto.Marshal(&greylagv1.SubmitJobsResponse{Jobs: []*greylagv1.Submitted{{Id: 7}}, Warnings: []string{"w"}})
			w.Header().Set("Content-Type", "application/proto")
			_, _ = w.Write(body)
		},
	} {
		requests := answering(t, answer)
		out, request, done := run("--wrap", "true")
		if got := <-requests; done || out != "" || request == "" || got.RequestId != request {
			t.Errorf("%s: %q, %q, %v", name, out, request, done)
		}
	}
	t.Setenv(config.ClientEnv, filepath.Join(t.TempDir(), "absent"))
	if _, request, done := run("--wrap", "true"); done || request != "" {
		t.Errorf("without a configuration: %q, %v", request, done)
	}
}

// TestRequestOfTheWholeProgram checks that the full program continues with the same request,
// whatever the environment contained: of two values, a program uses the first.
func TestRequestOfTheWholeProgram(t *testing.T) {
	for request, want := range map[string][]string{"": {"A=b"}, "7": {"A=b", RequestVariable + "=7"}} {
		if got := environment([]string{RequestVariable + "=old", "A=b"}, request); !slices.Equal(got, want) {
			t.Errorf("request %q: %q", request, got)
		}
	}
}

// FuzzReadHTTP checks that no answer crashes, and none is longer than allowed.
func FuzzReadHTTP(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: application/proto\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\nContent-Length: 99999999999\n\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		if body, err := readAnswer(bytes.NewReader(answer)); err == nil && len(body) > mostAnswer {
			t.Errorf("%d bytes", len(body))
		}
	})
}
