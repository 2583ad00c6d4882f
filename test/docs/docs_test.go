package docs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.ReapIfAsked()
	os.Exit(m.Run())
}

func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a whole cluster for each document: not with -short")
	}
	if err := cluster.Containers(); err != nil {
		t.Skipf("needs containers: %v", err)
	}
	pages := readPages(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		blocks := parse(pages[name])
		if len(blocks) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) { runBlocks(t, blocks) })
	}
}

// runBlocks runs the blocks of one document.
func runBlocks(t *testing.T, blocks []block) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Name: "docs", Nodes: 2, GPUs: 4, CPUs: 8, Memory: "4GiB", Tmpfs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	programs, err := commands(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.file != "" {
			if err := os.WriteFile(filepath.Join(c.Work, b.file), []byte(b.text), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, e := range b.examples {
			if err := try(ctx, c, programs, e); err != nil {
				t.Errorf("line %d: $ %s\n%v", e.line, e.command, err)
			}
		}
	}
}

// try runs one command. A command that only reads may be too early, so it is repeated until the
// answer is right.
func try(ctx context.Context, c *cluster.Cluster, programs string, e example) error {
	reads := regexp.MustCompile(`^(gqueue|gctl (show|info|why|plan))\b`).MatchString(e.command)
	end := time.Now().Add(2 * time.Minute)
	for {
		err := once(ctx, c, programs, e)
		if err == nil || !reads || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// commands returns a folder with the commands that jobs see too: the /tmp of a job is private.
func commands(c *cluster.Cluster) (string, error) {
	if !strings.HasPrefix(c.Programs(), "/tmp/") && !strings.HasPrefix(c.Programs(), "/var/tmp/") {
		return c.Programs(), nil
	}
	dir := filepath.Join(c.Work, ".bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"gsubmit", "gqueue", "gcancel", "grun", "gctl", "gsim"} {
		data, err := os.ReadFile(filepath.Join(c.Programs(), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o755)
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

func once(ctx context.Context, c *cluster.Cluster, programs string, e example) error {
	cmd := exec.CommandContext(ctx, "bash", "-c", e.command)
	cmd.Dir = c.Work
	cmd.Env = append(os.Environ(), "GREYLAG_CONFIG="+c.ConfigFile(), "LC_ALL=C", "PATH="+programs+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if e.answer != "" && !same(e.answer, string(out)) {
		return fmt.Errorf("answered\n%swanted\n%s", out, e.answer)
	}
	return nil
}

// clock matches times and durations, which differ between two runs.
var clock = regexp.MustCompile(`\b(\d{4}-\d\d-\d\dT)?\d+:\d\d(:\d\d)?\b`)

// same reports whether an answer is the documented one, line by line; "..." stands for any number of lines, and within a line
// for the rest of it.
func same(want, got string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(want) {
		if strings.TrimSpace(line) == "..." {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		known, cut := strings.CutSuffix(strings.TrimSpace(line), "...")
		pattern.WriteString(regexp.QuoteMeta(plain(known)))
		if cut {
			pattern.WriteString(`.*`)
		}
		pattern.WriteString(`\n`)
	}
	var plainGot strings.Builder
	for line := range strings.Lines(got) {
		plainGot.WriteString(plain(line) + "\n")
	}
	return regexp.MustCompile(`^(?:` + pattern.String() + `)$`).MatchString(plainGot.String())
}

func plain(line string) string {
	return clock.ReplaceAllString(strings.Join(strings.Fields(line), " "), "TIME")
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"a  b\n", "a b\n", true}, {"a\n", "b\n", false}, {"a\n...\nz\n", "a\nb\nc\nz\n", true},
		{"a\n...\nz\n", "a\nz\n", true}, {"a\n", "a\nb\n", false}, {"1 R 0:00\n", "1 R 12:34\n", true}, {"1.2\n", "1x2\n", false},
		{"a b...\nc\n", "a b d\nc\n", true}, {"a b ...\nc\n", "a b\nc\n", true}, {"a...\n", "b a\n", false}, {"a...\n", "ab\nc\n", false},
	} {
		if same(c.want, c.got) != c.same {
			t.Errorf("%q and %q: want same %v", c.want, c.got, c.same)
		}
	}
}

// block is one fenced block: a file, or examples.
type block struct {
	file, text string
	examples   []example
}

type example struct {
	line            int
	command, answer string
}

// parse returns the blocks of a document that are run.
func parse(text string) []block {
	var blocks []block
	var current *block
	for i, line := range strings.Split(text, "\n") {
		switch {
		case current != nil && line == "```":
			blocks, current = append(blocks, *current), nil
		case current == nil && line == "```console":
			current = &block{}
		case current == nil && strings.HasPrefix(line, "```bash file="):
			current = &block{file: strings.TrimPrefix(line, "```bash file=")}
		case current == nil:
		case current.file != "":
			current.text += line + "\n"
		case strings.HasPrefix(line, "$ "):
			current.examples = append(current.examples, example{line: i + 1, command: line[2:]})
		case len(current.examples) > 0:
			last := &current.examples[len(current.examples)-1]
			last.answer += line + "\n"
		}
	}
	return blocks
}
