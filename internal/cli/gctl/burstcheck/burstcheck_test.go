package burstcheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

// example is the provider program of the documents.
const example = "../../../../etc/burst-example.py"

// gctl runs gctl burst check, and returns what it prints.
func gctl(t *testing.T, asJSON bool, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, complaints bytes.Buffer
	p := &ui.Process{Program: "gctl", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &complaints}
	c := Command(&tool.Tool{Process: p, JSON: asJSON})
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err = c.ExecuteContext(t.Context())
	return out.String(), complaints.String(), err
}

func TestCheckPrintsEachRule(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	cloud := "FAKE_CLOUD=" + t.TempDir()
	out, complaints, err := gctl(t, false, "y\n", "--environment", cloud, example)
	if err != nil || strings.Count(out, "\n") != 20 || strings.Count(out, "\nok      ") != 19 || !strings.Contains(out, "ok      terminate again is no error\n") {
		t.Errorf("%v\n%s%s", err, out, complaints)
	}
	page, bad := os.ReadFile("../../../../docs/burst-provider.md")
	_, shown, _ := strings.Cut(string(page), "./burst-example.py\n")
	shown, _, _ = strings.Cut(shown, "```")
	before, after, _ := strings.Cut(shown, complaints+"y\n")
	if bad != nil || before+after != out {
		t.Errorf("docs/burst-provider.md shows another output: %v\n%s", bad, out)
	}
	if want := "Rent one instance of gpu8/r1 (spot), for 24.50 USD an hour, for a few minutes? [y/N] "; complaints != want {
		t.Errorf("asked %q, want %q", complaints, want)
	}
	out, complaints, err = gctl(t, false, "\n", "--environment", cloud, example)
	if err == nil || strings.Contains(out, "FAILED") || !strings.Contains(complaints, "no instance rented") {
		t.Errorf("not confirmed: %v\n%s%s", err, out, complaints)
	}
	config := filepath.Join(t.TempDir(), "gctld.toml")
	path, err := filepath.Abs(example)
	if err == nil {
		err = os.WriteFile(config, []byte("[burst]\nprogram = \""+path+"\"\nenvironment = [\""+cloud+"\"]\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var results []checkResult
	out, complaints, err = gctl(t, true, "", "--config", config, "--yes", "--offer", "gpu8/r1")
	if bad := json.Unmarshal([]byte(out), &results); err != nil || bad != nil || len(results) != 20 || !results[19].OK {
		t.Errorf("JSON: %v, %v\n%s%s", err, bad, out, complaints)
	}
}

func TestCheckOfABrokenProgram(t *testing.T) {
	out, complaints, err := gctl(t, false, "", "--yes", "--wait", "10ms", "/bin/echo", "--flag", "hello")
	if err == nil || !strings.Contains(out, "FAILED  validate reports no problems: validate: invalid answer: invalid character '-'") || !strings.Contains(complaints, "5 checks failed") {
		t.Errorf("%v\n%s%s", err, out, complaints)
	}
	var usage *ui.UsageError
	for _, args := range [][]string{{"--config", filepath.Join(t.TempDir(), "none")}, {"--wait", "0s", "/bin/true"}} {
		if _, _, err := gctl(t, false, "", args...); err == nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	empty := filepath.Join(t.TempDir(), "gctld.toml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := gctl(t, false, "", "--config", empty); !errors.As(err, &usage) {
		t.Error(err)
	}
}
