// Command sbom writes the software bill of materials of Go programs, from the module versions that
// the linker stored in them: sbom -o DIR PROGRAM... writes DIR/PROGRAM.cdx.json (CycloneDX 1.5).
// sbom -licenses PROGRAM... writes the license texts of these modules instead, from the module cache.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	dir := flag.String("o", ".", "`directory` of the bills")
	texts := flag.Bool("licenses", false, "write the license texts of the modules to standard output")
	flag.Parse()
	var err error
	if *texts {
		err = licenses(os.Stdout, flag.Args())
	} else {
		for _, program := range flag.Args() {
			err = errors.Join(err, write(program, *dir))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// bill is a CycloneDX document (cyclonedx.org, version 1.5).
type bill struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

func write(program, dir string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	sum := sha256.Sum256(content)
	name := filepath.Base(program)
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{component{
		Type: "application", Name: name, Version: info.GoVersion, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}}, Components: []component{{Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), URL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}}
	for _, m := range modules(info) {
		b.Components = append(b.Components, component{Type: "library", Name: m.Path, Version: m.Version, URL: "pkg:golang/" + m.Path + "@" + m.Version})
	}
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".cdx.json"), append(text, '\n'), 0o644)
}

// modules returns the modules that a program was linked with, replacements applied, in their order. A module that a
// folder replaces is part of the program's own source.
func modules(info *debug.BuildInfo) []*debug.Module {
	var all []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if strings.HasPrefix(m.Path, ".") {
			continue
		}
		all = append(all, m)
	}
	return all
}

// licenses writes the license texts of all modules of programs, sorted by module, each once.
func licenses(w io.Writer, programs []string) error {
	versions := map[string]bool{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		for _, m := range modules(info) {
			versions[m.Path+"@"+m.Version] = true
		}
	}
	for _, module := range slices.Sorted(maps.Keys(versions)) {
		text, err := licenseOf(module)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "==== %s\n\n%s\n", module, text); err != nil {
			return err
		}
	}
	return nil
}

// licenseOf returns the text of a module's license files.
func licenseOf(module string) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the files of %s: %w", module, err)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(found.Dir)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, entry := range entries {
		upper := strings.ToUpper(entry.Name())
		if !entry.Type().IsRegular() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}, func(p string) bool { return strings.HasPrefix(upper, p) }) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(found.Dir, entry.Name()))
		if err != nil {
			return "", err
		}
		text.Write(content)
	}
	if text.Len() == 0 {
		return "", fmt.Errorf("%s has no license file", module)
	}
	return text.String(), nil
}
