package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/greylag/greylag/internal/gpu"
)

// maxRecord is the size of the longest record of the kernel log, in bytes.
const maxRecord = 8192

// WatchKernel reports the errors of GPUs in the kernel log at path, from now on, until ctx ends.
func WatchKernel(ctx context.Context, path string, report func(gpu.Event)) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("kernel log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, syscall.ESPIPE) {
		return fmt.Errorf("kernel log: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = file.Close() }) // ends a read
	defer stop()
	record := make([]byte, maxRecord)
	for {
		n, err := file.Read(record)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, syscall.EPIPE): // records were overwritten before they were read
			continue
		case err != nil:
			return fmt.Errorf("kernel log: %w", err)
		}
		for line := range strings.Lines(string(record[:n])) {
			if text, kernel := message(line); kernel {
				if e, is := gpu.KernelEvent(text); is {
					report(e)
				}
			}
		}
	}
}

// message returns the text of a record "PRIORITY,SEQUENCE,TIME,FLAGS;TEXT"; false if a program wrote it.
func message(line string) (text string, kernel bool) {
	head, text, found := strings.Cut(line, ";")
	number, _, _ := strings.Cut(head, ",")
	priority, err := strconv.ParseUint(number, 10, 32)
	return strings.TrimSpace(text), found && err == nil && priority < 8
}
