package check

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/pkg/cluster"
)

// example is the example of docs/burst-provider.md.
const example = "../../../etc/burst-example.py"

// checkExample checks the example with some of its text replaced, and returns the broken rules. Nothing may be left in
// its cloud except if left says so.
func checkExample(t *testing.T, confirm, left bool, replaced ...string) (broken []string, rules int, err error) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(string(text), replaced[i]) {
			t.Fatalf("the example lacks %s", replaced[i])
		}
	}
	dir := t.TempDir()
	program, cloud := filepath.Join(dir, "provider"), filepath.Join(dir, "cloud")
	if err := os.WriteFile(program, []byte(strings.NewReplacer(replaced...).Replace(string(text))), 0o755); err != nil {
		t.Fatal(err)
	}
	failed, err := Run(t.Context(), Config{
		Provider: burst.Config{Program: program, Environment: []string{"FAKE_CLOUD=" + cloud}, Timeout: 20 * time.Second, Log: slog.New(slog.DiscardHandler)},
		Confirm:  func(o cluster.Offer, _ string) bool { return confirm && o.Market == cluster.Spot },
		Wait:     200 * time.Millisecond, Poll: 20 * time.Millisecond,
		Report: func(r Result) {
			rules++
			if r.Problem != "" {
				broken = append(broken, r.Rule+": "+r.Problem)
			}
		},
	})
	if failed != len(broken) {
		t.Errorf("%d failed, %d reported", failed, len(broken))
	}
	files, _ := filepath.Glob(filepath.Join(cloud, "*"))
	for _, path := range files {
		if text, err := os.ReadFile(path); !left && (err != nil || !strings.Contains(string(text), `"terminated"`)) {
			t.Errorf("left running: %s %v", text, err)
		}
	}
	return broken, rules, err
}

func TestExampleConforms(t *testing.T) {
	broken, rules, err := checkExample(t, true, false)
	if len(broken) > 0 || err != nil || rules != 20 {
		t.Errorf("%d rules, %v\n%s", rules, err, strings.Join(broken, "\n"))
	}
	broken, rules, err = checkExample(t, false, false)
	if len(broken) > 0 || !errors.Is(err, ErrNotConfirmed) || rules != 9 {
		t.Errorf("not confirmed: %d rules, %v\n%s", rules, err, strings.Join(broken, "\n"))
	}
}

// TestBrokenPrograms: each broken rule is found, and what the program started is ended.
func TestBrokenPrograms(t *testing.T) {
	for name, row := range map[string]struct {
		old, replacement string
		want             string // beginning of a reported rule
		left             bool
	}{
		"not idempotent":          {`question["cluster"] + want["client_token"]`, `repr(os.getpid())`, "the same launch again returns the same instance: ", false},
		"ignores the arguments":   {`if first["arguments"] != arguments`, `if False`, "the same client token with other arguments is refused: expected exit status 1 with an error of the kind mismatched", false},
		"ignores the price":       {`> decimal.Decimal(want["max_price"])`, `< 0`, "a launch above the maximum price is refused: expected exit status 1", false},
		"accepts garbage":         {`except (KeyError, ValueError) as e:`, `except OSError as e:`, `launch with the input "garbage {" fails: expected exit status 1 with an error of the kind invalid, got: `, false},
		"has no unknown offers":   {"if not price:", "if not price:\n        return\n    if False:", "a launch of an unknown offer is refused: ", false},
		"terminate fails":         {"    for name in ended:\n        cloud", "    if ended: raise Failure('denied', 'no permission')\n    for name in ended:\n        cloud", "nothing is left running: ", true},
		"terminate does nothing":  {"        cloud.delete(name)\n    return", "        pass\n    return", "list shows that the instance has ended: expected i", true},
		"tags another launch":     {`"launch": want["launch"]`, `"launch": want["launch"] + 1`, "a launch starts the instance with its tags: launch: instance of another launch", false},
		"a price of 0":            {`"price": "24.50"`, `"price": "0"`, "offers are complete and valid: offers: invalid answer: offer \"gpu8/r1\": price", false},
		"answers nothing":         {`return {"instances": [shown(cloud.read(name)) for name in names]}`, `return {}`, "a launch starts the instance with its tags: launch: wrong number of instances: 0, not 1", false},
		"lists nothing":           {`return {"instances": [shown(x) for x in cloud.list(question["cluster"])]}`, `return {}`, "list shows exactly the instance, with its tags: expected i", false},
		"problems":                {`[] if os.access(cloud.dir, os.W_OK) else`, `["no credentials"] if True else`, "validate reports no problems: ", false},
		"text follows the answer": {"    json.dump(answer, sys.stdout)", "    json.dump(answer, sys.stdout)\n    print('bye')", "list works before the first launch: list: invalid answer: text follows", false},
	} {
		t.Run(name, func(t *testing.T) {
			broken, _, err := checkExample(t, true, row.left, row.old, row.replacement)
			if err != nil || !slices.ContainsFunc(broken, func(text string) bool { return strings.HasPrefix(text, row.want) }) {
				t.Errorf("%v, want %s\n%s", err, row.want, strings.Join(broken, "\n"))
			}
		})
	}
}
