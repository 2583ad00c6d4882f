package leased

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"
)

const (
	pollInterval = 5 * time.Second
	// pollTimeout limits one question to a source.
	pollTimeout = 4 * time.Second
)

// rebalanceWord is the line of a file or a program instead of a time.
const rebalanceWord = "rebalance"

// Notice is what the cloud says about the node. The zero value says nothing.
type Notice struct {
	Reclaim   time.Time // when the cloud takes the node back
	Rebalance bool      // the cloud expects to take it back
}

// Source returns the present notice of the cloud.
type Source func(ctx context.Context) (Notice, error)

// Open returns the source that reclaim_source names, nil for none; metadata is the URL of the metadata service.
func Open(name, metadata string) (Source, error) {
	switch kind, path, _ := strings.Cut(name, ":"); {
	case name == "":
		return nil, nil
	case name == "aws":
		return newIMDS(metadata).notice, nil
	case kind == "file" && path != "":
		return func(context.Context) (Notice, error) { return fileNotice(path) }, nil
	case kind == "exec" && path != "":
		return func(ctx context.Context) (Notice, error) {
			out, err := Run(ctx, []string{path}, "")
			if err != nil {
				return Notice{}, err
			}
			return parseLine(path, out)
		}, nil
	}
	return nil, fmt.Errorf("reclaim_source: %q is not aws, file:PATH or exec:PROGRAM", name)
}

// fileNotice reads a file; one that does not exist is no notice.
func fileNotice(path string) (Notice, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Notice{}, nil
	}
	if err != nil {
		return Notice{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxOutput))
	if err != nil {
		return Notice{}, err
	}
	return parseLine(path, text)
}

// parseLine reads the first line of a file or a program.
func parseLine(from string, text []byte) (Notice, error) {
	line := firstLine(text)
	switch line {
	case "":
		return Notice{}, nil
	case rebalanceWord:
		return Notice{Rebalance: true}, nil
	}
	at, err := time.Parse(time.RFC3339, line)
	if err != nil {
		return Notice{}, fmt.Errorf("%s: %.100q is neither an RFC 3339 time nor %q", from, line, rebalanceWord)
	}
	return Notice{Reclaim: at}, nil
}

// WatchNotices asks a source every 5 s until ctx ends, and passes on what it says. It logs an error once until the
// source answers or has another error. A question without an answer is followed by no other one.
func WatchNotices(ctx context.Context, source Source, log *slog.Logger, receive func(Notice)) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	type answer struct {
		notice Notice
		err    error
	}
	answers, asking, logged := make(chan answer, 1), false, ""
	for {
		if !asking {
			asking = true
			go func() { // a file can hang in the kernel
				limited, cancel := context.WithTimeout(ctx, pollTimeout)
				defer cancel()
				notice, err := source(limited)
				answers <- answer{notice, err}
			}()
		}
		problem := ""
		select {
		case a := <-answers:
			if asking = false; a.err == nil {
				receive(a.notice)
			} else {
				problem = a.err.Error()
			}
		case <-time.After(pollTimeout + time.Second/2):
			problem = fmt.Sprintf("no answer within %s", pollTimeout)
		case <-ctx.Done():
			return
		}
		if problem != "" && problem != logged && ctx.Err() == nil {
			log.Warn("cannot read the notices of the cloud", "err", problem, "retry_in", pollInterval)
		}
		logged = problem
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
