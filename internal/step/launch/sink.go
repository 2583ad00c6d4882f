package launch

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// sink writes the output of all tasks to one stream of grun. Each call writes whole lines, or with
// --unbuffered whatever has come.
type sink struct {
	mu     sync.Mutex
	to     io.Writer
	width  int // of labels; 0: none
	within int // rank of the unfinished line at the end of the output; -1: none
	line   bytes.Buffer
}

func newSink(to io.Writer, label bool, tasks int) *sink {
	s := &sink{to: to, within: -1}
	if label {
		s.width = len(strconv.Itoa(max(tasks-1, 0)))
	}
	return s
}

func (s *sink) write(rank int, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		data = s.labelled(rank, data)
	}
	_, err := s.to.Write(data)
	return err
}

// labelled puts the rank before each line. A line that another task's output interrupts is ended.
func (s *sink) labelled(rank int, data []byte) []byte {
	s.line.Reset()
	if s.within >= 0 && s.within != rank {
		s.line.WriteByte('\n')
		s.within = -1
	}
	for line := range bytes.Lines(data) {
		if s.within != rank {
			fmt.Fprintf(&s.line, "%*d: ", s.width, rank)
		}
		s.line.Write(line)
		s.within = rank
		if line[len(line)-1] == '\n' {
			s.within = -1
		}
	}
	return s.line.Bytes()
}

// close ends an unfinished line with a label.
func (s *sink) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width == 0 || s.within < 0 {
		return nil
	}
	_, err := s.to.Write([]byte{'\n'})
	return err
}
