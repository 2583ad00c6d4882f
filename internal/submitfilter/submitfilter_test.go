package submitfilter

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
)

// program writes a shell script that all users may run.
func program(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "filter")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// filterOf returns a filter that runs a shell script as the user of the test.
func filterOf(t *testing.T, body string) *Filter {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Program: program(t, body), User: u.Uid, Deadline: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
}

var ann = Caller{User: "ann", UID: 1001, GID: 1001, Source: "192.0.2.1"}

func trainJob() *greylagv1.JobSpec {
	return &greylagv1.JobSpec{
		Name: "train", Partition: "gpu", Script: []byte("#!/bin/sh\ntrue\n"), Environment: []string{"HOME=/home/ann", "TOKEN=x=y"},
		Request: &greylagv1.Request{Gpus: 8, MemPerNode: 1 << 34}, TimeLimit: durationpb.New(time.Hour), OtherPartitions: []string{"old"},
	}
}

func TestProgramReadsTheJob(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "input")
	f := filterOf(t, "cat > "+seen)
	answer, err := f.Apply(t.Context(), ann, trainJob())
	if err != nil || len(answer.Changes) > 0 || answer.Job.GetName() != "train" {
		t.Fatalf("an empty answer: %+v, %v", answer, err)
	}
	got, err := os.ReadFile(seen)
	want := `{"user":"ann","uid":1001,"gid":1001,"source":"192.0.2.1","test_only":false,"job":{"environment":{"HOME":"/home/ann","TOKEN":"x=y"},"name":"train","other_partitions":["old"],"partition":"gpu","request":{"gpus":8,"mem_per_node":"17179869184"},"script":"#!/bin/sh\ntrue\n","time_limit":"3600s"}}` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("the program read\n%s, %v\nwant\n%s", got, err, want)
	}
}

func TestProgramChangesTheJob(t *testing.T) {
	for _, row := range []struct {
		answer string
		want   []string
	}{
		{`{}`, nil},
		{`{"message": "hello"}`, nil},
		{`{"job": {"partition": "gpu"}}`, nil},
		{`{"job": {"partition": "batch"}}`, []string{"partition: gpu → batch"}},
		{`{"job": {"request": {"gpus": 4}, "time_limit": "60s"}}`, []string{"request.gpus: 8 → 4", "time_limit: 3600s → 60s"}},
		{`{"job": {"qos": "low", "other_partitions": null}}`, []string{`other_partitions: ["old"] → unset`, "qos: unset → low"}},
		{`{"job": {"script": "#!/bin/sh\nfalse\n"}}`, []string{"script"}},
		{`{"job": {"environment": {"SITE": "1", "TOKEN": null}}}`, []string{"environment"}},
		{`{"job": {"request": null}}`, []string{"request.gpus: 8 → unset", "request.mem_per_node: 17179869184 → unset"}},
		{`{"job": {"comment": "a\u001b[2Jb"}}`, []string{"comment: unset → a [2Jb"}},
	} {
		f := filterOf(t, "cat <<'END'\n"+row.answer+"\nEND")
		spec := trainJob()
		answer, err := f.Apply(t.Context(), ann, spec)
		if err != nil || !slices.Equal(answer.Changes, row.want) {
			t.Errorf("%s: changes %q, %v, want %q", row.answer, answer.Changes, err, row.want)
		}
		if spec.GetPartition() != "gpu" || spec.GetRequest().GetGpus() != 8 {
			t.Errorf("%s: the caller's job was changed", row.answer)
		}
	}
	f := filterOf(t, `echo '{"job": {"environment": {"SITE": "1", "TOKEN": null}, "script": "#!/bin/true"}, "message": "see the wiki"}'`)
	answer, err := f.Apply(t.Context(), ann, trainJob())
	if err != nil || answer.Message != "see the wiki" || string(answer.Job.GetScript()) != "#!/bin/true" || !slices.Equal(answer.Job.GetEnvironment(), []string{"HOME=/home/ann", "SITE=1"}) {
		t.Errorf("changed contents: %+v, %v", answer, err)
	}
}

func TestProgramRefusesOrFails(t *testing.T) {
	for _, row := range []struct{ name, body, want string }{
		{"refuses", `echo '{"refuse": "jobs need a project: use --comment"}'`, "refused by the submission filter of this site: jobs need a project: use --comment"},
		{"fails", "echo broken >&2; exit 3", "the submission filter of this site failed: exit status 3"},
		{"is killed", "kill -9 $$", "the submission filter of this site failed: signal: killed"},
		{"prints garbage", "echo hello", "the submission filter of this site failed: its answer is not the expected JSON: invalid character 'h' looking for beginning of value"},
		{"prints an unknown key", `echo '{"jobs": {}}'`, `the submission filter of this site failed: its answer is not the expected JSON: json: unknown field "jobs"`},
		{"prints two answers", `echo '{}{}'`, "the submission filter of this site failed: its answer is not the expected JSON: text follows the JSON object"},
		{"sets the owner", `echo '{"job": {"owner": "root"}}'`, `unknown field "owner"`},
		{"sets a wrong type", `echo '{"job": {"nice": "much"}}'`, "its answer is not a job"},
		{"sets a wrong script", `echo '{"job": {"script": 1}}'`, "script is not a string"},
		{"sets a wrong variable", `echo '{"job": {"environment": {"A": 1}}}'`, `the variable "A" is neither a string nor null`},
		{"floods", "exec cat /dev/zero", "its answer is larger than 1 MiB"},
		{"floods its errors", "head -c 3000000 /dev/zero >&2; exit 1", "exit status 1"},
		{"leaves a child", "sleep 1000 &", "it left child processes"},
	} {
		_, err := filterOf(t, row.body).Apply(t.Context(), ann, trainJob())
		var r *command.Refusal
		if !errors.As(err, &r) || !strings.Contains(r.Message, row.want) {
			t.Errorf("a program that %s: %v, want %s", row.name, err, row.want)
			continue
		}
		if wanted := map[bool]command.Code{true: command.Denied, false: command.Internal}[row.name == "refuses"]; r.Code != wanted {
			t.Errorf("a program that %s: code %v, want %v", row.name, r.Code, wanted)
		}
	}
}

func TestProgramThatHangsIsEnded(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	f := filterOf(t, "sleep 1000 & echo $! $$ > "+pids+"; wait")
	f.cfg.Deadline = 500 * time.Millisecond
	_, err := f.Apply(t.Context(), ann, trainJob())
	if err == nil || !strings.Contains(err.Error(), "it did not answer within 500ms") {
		t.Errorf("a program that hangs: %v", err)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(text)) {
		for end := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %s of the program still runs", pid)
			}
		}
	}
}

// alive reports whether a process runs; one that only waits to be reaped does not.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestCallerWhoLeavesEndsTheProgram(t *testing.T) {
	f := filterOf(t, "exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := f.Apply(ctx, ann, trainJob()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who left: %v", err)
	}
}

func TestBusyFilterRefuses(t *testing.T) {
	f := filterOf(t, "true")
	f.cfg.Deadline = 10 * time.Millisecond
	for range maxRuns {
		f.runs <- struct{}{}
	}
	var r *command.Refusal
	if _, err := f.Apply(t.Context(), ann, trainJob()); !errors.As(err, &r) || r.Code != command.Exhausted || r.Hint == "" {
		t.Errorf("a busy filter: %v", err)
	}
}

func TestProgramOfTheDocuments(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("needs jq")
	}
	page, err := os.ReadFile("../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(page), "#!/bin/sh\nexec jq")
	if !found {
		t.Fatal("docs/admin.md has no submission filter")
	}
	body, _, _ = strings.Cut(body, "```")
	f := filterOf(t, "exec jq"+body)
	spec := trainJob()
	if _, err := f.Apply(t.Context(), ann, spec); err == nil || !strings.HasSuffix(err.Error(), "name your project with --comment") {
		t.Errorf("a job without a comment: %v", err)
	}
	spec.Comment, spec.TimeLimit = "vision", durationpb.New(10*time.Minute)
	if answer, err := f.Apply(t.Context(), ann, spec); err != nil || answer.Job.GetPartition() != "short" {
		t.Errorf("a short job: %+v, %v", answer, err)
	}
}

func TestProgramRunsAsItsUser(t *testing.T) {
	f := filterOf(t, `echo "{\"message\": \"$(id -u) $(id -G)\"}"`)
	f.cfg.User = "unknown-user"
	if _, err := f.Apply(t.Context(), ann, trainJob()); err == nil || !strings.Contains(err.Error(), `the user "unknown-user" is not in /etc/passwd`) {
		t.Errorf("an unknown user: %v", err)
	}
	other, err := user.Lookup("daemon")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("only root can start a program of another user")
	}
	f.cfg.User = "daemon"
	if answer, err := f.Apply(t.Context(), ann, trainJob()); err != nil || answer.Message != other.Uid+" "+other.Gid {
		t.Errorf("runs as %q, %v, want %s %s", answer.Message, err, other.Uid, other.Gid)
	}
}
