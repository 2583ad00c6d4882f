package slurmconf

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kind is what a file holds.
type Kind uint8

// The kinds of files.
const (
	Other    Kind = iota
	Main          // slurm.conf
	GRES          // gres.conf
	Topology      // topology.conf or topology.yaml
	Dump          // the output of sacctmgr dump
	QOSTable      // the output of sacctmgr --parsable2 show qos
)

var (
	dumpLine  = regexp.MustCompile(`^(Cluster|Parent|Account|User) +- +'`)
	tableLine = regexp.MustCompile(`^Name\|.*(Priority|Preempt|MaxWall|GrpTRES)`)
)

// KindOf tells the kind of a file from its name, otherwise from its first lines.
func KindOf(path string) Kind {
	switch name := strings.ToLower(filepath.Base(path)); {
	case name == "gres.conf":
		return GRES
	case name == "slurm.conf":
		return Main
	case strings.HasPrefix(name, "topology."):
		return Topology
	}
	f, err := os.Open(path)
	if err != nil {
		return Other
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 64<<10))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case dumpLine.MatchString(line):
			return Dump
		case tableLine.MatchString(line):
			return QOSTable
		case line != "" && line[0] != '#':
			return Other
		}
	}
	return Other
}

// Set is the files of one cluster.
type Set struct {
	Main, GRES, Topology, Dump, QOSTable string   // "" where it is missing
	Others                               []string // files of a directory that are none of these
}

// Find sorts files, and those of directories, by their kinds. A file that is given by name must have
// a kind.
func Find(paths []string) (Set, error) {
	var set Set
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return set, inWords(err)
		}
		if !info.IsDir() {
			if !info.Mode().IsRegular() { // reading its first lines would remove them
				return set, fmt.Errorf("%s is not a file: save the output in one", path)
			}
			kind := KindOf(path)
			if kind == Other && set.Main == "" && strings.HasSuffix(path, ".conf") {
				kind = Main // under another name
			}
			if err := set.put(kind, path, true); err != nil {
				return set, err
			}
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return set, err
		}
		for _, e := range entries {
			name := filepath.Join(path, e.Name())
			if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if err := set.put(KindOf(name), name, false); err != nil {
				return set, err
			}
		}
	}
	slices.Sort(set.Others)
	return set, nil
}

func (s *Set) put(kind Kind, path string, named bool) error {
	to := map[Kind]*string{Main: &s.Main, GRES: &s.GRES, Topology: &s.Topology, Dump: &s.Dump, QOSTable: &s.QOSTable}[kind]
	switch {
	case to == nil && named:
		return fmt.Errorf("%s is neither a slurm.conf, gres.conf or topology file, nor the output of sacctmgr", path)
	case to == nil:
		s.Others = append(s.Others, path)
	case kind == Topology && *to != "" && !named: // Slurm prefers topology.yaml too
		if strings.HasSuffix(path, ".yaml") {
			*to, path = path, *to
		}
		s.Others = append(s.Others, path)
	case *to != "":
		return fmt.Errorf("%s and %s are of the same kind", *to, path)
	default:
		*to = path
	}
	return nil
}
