// Package leased is what a leased node does apart from running tasks: it knows when its lease ends, powers the node
// off, reads the cloud's notices, and keeps users from the cloud's metadata service.
//
// It knows neither controllers nor tasks: the agent passes it what it needs.
package leased

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// ErrBadFile marks a lease file that gctl join --lease did not write, and ErrOtherNode one of another node.
var (
	ErrBadFile   = errors.New("not a valid lease file")
	ErrOtherNode = errors.New("the lease file does not fit this node")
)

// File is what a leased node keeps of its lease.
type File struct {
	Cluster  string          `json:"cluster"` // its ID
	Lease    cluster.LeaseID `json:"lease"`
	Launch   cluster.LeaseID `json:"launch"`
	Instance string          `json:"instance"` // instance ID
	Expires  time.Time       `json:"expires"`  // the node powers off then at the latest
}

// Text returns the content of the file.
func (f *File) Text() (string, error) {
	text, err := json.MarshalIndent(f, "", "  ")
	return string(text) + "\n", err
}

// ReadFile reads a lease file. The errors wrap fs.ErrNotExist or ErrBadFile.
func ReadFile(path string) (File, error) {
	var f File
	text, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("read lease: %w", err)
	}
	switch err := DecodeStrict(text, &f); {
	case err != nil:
		return f, fmt.Errorf("%s: %w: %w", path, ErrBadFile, err)
	case f.Cluster == "" || f.Lease == 0 || f.Instance == "" || f.Expires.IsZero():
		return f, fmt.Errorf("%s: %w: cluster, lease, instance and expires must be set", path, ErrBadFile)
	}
	return f, nil
}

// Load reads the lease file of a node, as its certificate names it; nil for a node of the site, which has none. The errors
// wrap fs.ErrNotExist, ErrBadFile or ErrOtherNode.
func Load(path, node, clusterID string) (*File, error) {
	f, err := ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !cluster.IsLeased(node):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: join the leased node with gctl join --lease", err)
	case f.Lease.NodeName() != node || f.Cluster != clusterID:
		return nil, fmt.Errorf("%w: %s is for node %s of cluster %s, and this is node %s of cluster %s: remove the file from a node of the site; on a leased node run gctl join --lease",
			ErrOtherNode, path, f.Lease.NodeName(), f.Cluster, node, clusterID)
	}
	return &f, nil
}

// DecodeStrict reads one JSON object without unknown fields.
func DecodeStrict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text follows the JSON object")
	}
	return nil
}

// firstLine returns the first line of a text without spaces around it.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(line)
}
