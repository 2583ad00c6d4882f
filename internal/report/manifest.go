package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Manifest describes a file and its source. It holds no creation time: the same report has the same
// manifest.
type Manifest struct {
	Schema       int    `json:"schema"`
	FOCUSVersion string `json:"focus_version,omitempty"`
	Report       string `json:"report"`
	Format       string `json:"format"`
	Cluster      string `json:"cluster"`
	Period       string `json:"period"`
	From         string `json:"from"`
	To           string `json:"to"` // exclusive
	TimeZone     string `json:"time_zone"`
	State        string `json:"state"` // closed if nothing can change any more, else open
	WatermarkSeq uint64 `json:"watermark_seq"`
	HeadHash     string `json:"head_hash"` // of the credits journal; "" if it has no entries
	Rows         int    `json:"rows"`
	File         string `json:"file"`
	SHA256       string `json:"sha256"`
}

// schema is incremented when a column changes its meaning.
const schema = 1

// Fill sets the fields that follow from the file and the period.
func (m *Manifest) Fill(p Period, file string, data []byte) {
	sum := sha256.Sum256(data)
	m.Schema, m.Period, m.TimeZone = schema, p.Name, p.From.Location().String()
	m.From, m.To = p.From.Format(time.RFC3339), p.To.Format(time.RFC3339)
	m.File, m.SHA256 = file, hex.EncodeToString(sum[:])
}

// Outcome is the effect of writing a report.
type Outcome string

// The outcomes.
const (
	Written   Outcome = "written"
	Unchanged Outcome = "unchanged" // the same report existed
	Replaced  Outcome = "replaced"  // another report of the same period existed
)

// ManifestName is the name of the manifest in the directory of a report.
const ManifestName = "manifest.json"

// Write writes a report and its manifest into a directory, which it creates. It writes each file to
// a temporary name, syncs and renames it, the manifest last, so that a reader who checks the
// manifest never sees part of a report.
func Write(dir string, m Manifest, data []byte) (Outcome, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", fmt.Errorf("manifest: %w", err)
	}
	text = append(text, '\n')
	path, manifest := filepath.Join(dir, m.File), filepath.Join(dir, ManifestName)
	old, err := os.ReadFile(path)
	switch {
	case err == nil:
		before, err := os.ReadFile(manifest)
		if err == nil && bytes.Equal(old, data) && bytes.Equal(before, text) {
			return Unchanged, nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := replace(path, data); err != nil {
		return "", err
	}
	if err := replace(manifest, text); err != nil {
		return "", err
	}
	if old != nil {
		return Replaced, nil
	}
	return Written, nil
}

// replace replaces a file atomically and durably.
func replace(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// ErrChanged is wrapped by the errors of Verify.
var ErrChanged = errors.New("report does not match its manifest")

// Look reads the manifest in a directory: made is false if there is no readable one, and final is
// true if the report can no longer change.
func Look(dir string) (made, final bool) {
	var m Manifest
	text, err := os.ReadFile(filepath.Join(dir, ManifestName))
	made = err == nil && json.Unmarshal(text, &m) == nil
	return made, made && m.State == "closed"
}

// Verify checks the report in a directory against its manifest.
func Verify(dir string) (Manifest, error) {
	var m Manifest
	text, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrChanged, filepath.Join(dir, ManifestName), err)
	}
	if m.File != filepath.Base(m.File) || m.File == "" || m.File == "." || m.File == ".." {
		return m, fmt.Errorf("%w: %s names the file %q", ErrChanged, filepath.Join(dir, ManifestName), m.File)
	}
	data, err := os.ReadFile(filepath.Join(dir, m.File))
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != m.SHA256 {
		return m, fmt.Errorf("%w: %s has another SHA-256", ErrChanged, filepath.Join(dir, m.File))
	}
	return m, nil
}
