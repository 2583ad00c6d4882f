package trace

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Read reads a log. If lines are invalid and not skipped, the error gives their number and the
// first ones; it wraps [ErrBad]. O(jobs).
func Read(in io.Reader, o Options) (*Trace, error) {
	b := bufio.NewReaderSize(in, 1<<16)
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBad, err)
		}
		b = bufio.NewReaderSize(z, 1<<16)
	}
	if block, _ := b.Peek(262); len(block) == 262 && string(block[257:]) == "ustar" {
		return readArchive(b, o)
	}
	return newReading(o).read(b)
}

// readArchive reads one table of an archive. The name may be empty if there is only one.
func readArchive(in io.Reader, o Options) (*Trace, error) {
	a := tar.NewReader(in)
	var names []string
	var only []byte
	for {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBad, err)
		}
		name := path.Base(h.Name)
		if !strings.HasSuffix(name, ".csv") || strings.HasPrefix(name, ".") {
			continue
		}
		short := strings.TrimSuffix(name, ".csv")
		if o.Member != "" && (o.Member == name || o.Member == short) {
			return newReading(o).read(bufio.NewReader(a))
		}
		if names = append(names, short); len(names) == 1 && o.Member == "" {
			if only, err = io.ReadAll(io.LimitReader(a, 1<<28)); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrBad, err)
			}
		}
	}
	switch {
	case o.Member != "":
		return nil, fmt.Errorf("%w: the archive has no table %q; it has %s", ErrBad, o.Member, strings.Join(names, ", "))
	case len(names) != 1:
		return nil, fmt.Errorf("%w: the archive has %d tables, choose one with --cluster: %s", ErrBad, len(names), strings.Join(names, ", "))
	}
	return newReading(o).read(bufio.NewReader(bytes.NewReader(only)))
}

// read reads all lines. A first line with a comma that is no comment is the header of a table; any
// other line begins a log in the Standard Workload Format.
func (r *reading) read(in *bufio.Reader) (*Trace, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	var t *table
	begun := false
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		var err error
		switch {
		case t != nil:
			err = r.row(t, number, line)
		case !begun && !strings.HasPrefix(strings.TrimSpace(line), ";") && strings.Contains(line, ","):
			t, err = newTable(line)
		default:
			trimmed := strings.TrimSpace(line)
			begun = begun || trimmed != "" && !strings.HasPrefix(trimmed, ";")
			err = r.swfLine(number, trimmed)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: after %d jobs: %w", ErrBad, len(r.Jobs), err)
	}
	return r.done()
}
