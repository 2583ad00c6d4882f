package clusterdoc

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/greylag/greylag/internal/config/configtest"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

const referenceDir = "../../docs/config"

// writeValue formats a value as a file has it.
func writeValue(v reflect.Value) string {
	text, err := toml.Marshal(map[string]any{"x": strict.EncodeValue(v).Interface()})
	if err != nil {
		panic(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(string(text), "x =")), "'", `"`)
}

// ownTypes are the types of the files by their Go names.
var ownTypes = map[string]string{
	"Duration": "duration", "Bytes": "size", "depth": "integer or `unlimited`", "horizon": "duration or `unlimited`", "moment": "time",
	"thousandths": "table of numbers", "counts": "table of integers", "Gres": "table of integers", "share": "integer or `parent`", "limitList": "list of limits", "override": "duration",
	"amount": "number", "burstMode": "string", "spotShare": "integer",
}

// references returns the pages of the configuration reference by their names.
func references() map[string]*configtest.Page {
	standard := cluster.DefaultPolicy()
	document := func(defaults any, read func(text []byte) error) *configtest.Page {
		return &configtest.Page{Defaults: defaults, Load: func(text string) string { return faultText(read([]byte(text))) }}
	}
	pages := map[string]*configtest.Page{
		"policy":   document(fileOf(&standard), func(text []byte) error { _, err := ReadPolicy("policy.toml", text); return err }),
		"accounts": document(accounts{}, func(text []byte) error { _, _, err := ReadAccounts("accounts.toml", text); return err }),
		"machine":  document(machine{}, func(text []byte) error { _, _, err := ReadMachine("machine.toml", text); return err }),
	}
	for _, p := range pages {
		p.Write, p.Types = writeValue, ownTypes
		p.Elements = map[string]string{
			"partition": "name = \"p\"\n", "qos": "name = \"standard\"\n", "account": "name = \"a\"\n",
			"user": "name = \"u\"\naccount = \"a\"\n", "node": "names = [\"n\"]\ncpus = 1\n",
		}
	}
	return pages
}

func faultText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestReference: docs/config has each key of each file with its type and default, and files are
// refused right outside each documented range.
func TestReference(t *testing.T) {
	for name, page := range references() {
		path := filepath.Join(referenceDir, name+".md")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page.Text = string(text)
		if scenario.Rewrite() {
			page.Text = page.Update()
			if err := os.WriteFile(path, []byte(page.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, fault := range page.Faults() {
			t.Errorf("%s: %s", path, fault)
		}
	}
}

// TestRenamedKeys: a former key is refused with the present one.
func TestRenamedKeys(t *testing.T) {
	for text, want := range map[string]string{
		"[credits]\non = true":         "credits.on: unknown key; did you mean enabled?",
		"max_pending = 1":              "max_pending: unknown key; did you mean max_jobs?",
		"[[reservation]]\nwhy = \"x\"": "reservation[0].why: unknown key; did you mean reason?",
	} {
		if got := references()["policy"].Load(text); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestDocumentedFiles: examples of files in documents are read without a fault.
func TestDocumentedFiles(t *testing.T) {
	pages := references()
	block := regexp.MustCompile("(?ms)^```toml$\n(.*?)^```$")
	for page, kind := range map[string]string{"admin.md": "policy", "gsim.md": "machine"} {
		text, err := os.ReadFile(filepath.Join(referenceDir, "..", page))
		if err != nil {
			t.Fatal(err)
		}
		examples := block.FindAllStringSubmatch(string(text), -1)
		if len(examples) == 0 {
			t.Errorf("docs/%s has no example", page)
		}
		for _, m := range examples {
			if faults := pages[kind].Load(m[1]); faults != "" {
				t.Errorf("docs/%s: %s", page, faults)
			}
		}
	}
}
