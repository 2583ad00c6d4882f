package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/taskdb"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	recordsFile  = "tasks.db"
	instanceFile = "instance" // "BOOT INSTANCE": distinguishes a lost file from one that never existed
)

// labelGranted is the label of a task in the runtime that holds taskdb.Task.Granted.
const labelGranted = "greylag/granted"

// openRecords opens taskdb and determines this life of the node. A life is a boot of the kernel, or
// less if the state directory was emptied: then the controllers must count all tasks as lost.
func (a *Agent) openRecords() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	path := filepath.Join(a.cfg.StateDir, recordsFile)
	db, _, err := taskdb.Open(path)
	if err != nil {
		return err
	}
	identity, known, err := db.Identity()
	a.servedBoot = known && identity.Boot == boot || a.readInstance(boot) != ""
	if err == nil && known && identity.Boot != boot {
		known = false
		if err = errors.Join(db.Close(), os.Remove(path)); err == nil {
			db, _, err = taskdb.Open(path)
		}
	}
	if err != nil {
		return err
	}
	if !known {
		identity = taskdb.Identity{Boot: boot, Instance: rand.Text()}
		if earlier := a.readInstance(boot); earlier != "" {
			identity.Instance, identity.Recovering = earlier, true
			a.log.Warn("task records were lost: recovering from the runtime", "file", path)
		}
	}
	if err = db.SetIdentity(identity); err == nil {
		err = a.writeInstance(identity)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	a.db, a.identity = db, identity
	return nil
}

// readInstance returns the instance that this boot had before the records were lost.
func (a *Agent) readInstance(boot string) string {
	data, err := os.ReadFile(filepath.Join(a.cfg.StateDir, instanceFile))
	if err != nil {
		return ""
	}
	before, instance, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	if before != boot {
		return ""
	}
	return instance
}

func (a *Agent) writeInstance(id taskdb.Identity) error {
	path := filepath.Join(a.cfg.StateDir, instanceFile)
	if err := os.WriteFile(path+".new", []byte(id.Boot+" "+id.Instance+"\n"), 0o600); err != nil {
		return fmt.Errorf("node instance: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("node instance: %w", err)
	}
	return nil
}

// boot returns the identity of this life of the node for the controllers.
func (s *state) boot() string { return s.identity.Boot + "." + s.identity.Instance }

// load restores the records and watches the running tasks.
func (a *Agent) load(ctx context.Context) error {
	records, err := a.db.Tasks()
	if err != nil {
		return err
	}
	if a.floor, err = a.db.Floor(); err != nil {
		return err
	}
	if !a.identity.Recovering {
		a.acted = a.floor
	}
	for _, record := range records {
		spec, err := decodeWanted(record.Wanted)
		if err != nil {
			return fmt.Errorf("record of task %d.%d: %w", record.ID.Job, record.ID.Attempt, err)
		}
		t := newTask(record, spec)
		a.tasks[t.ID] = t
		a.cores.mark(t.ID, t.CPUs)
	}
	if found, err := a.list(ctx); err == nil {
		a.adopt(ctx, found)
	}
	a.reopenSockets()
	a.endUnusedMPS()
	for _, t := range a.tasks {
		if t.Phase == reconcile.Started {
			a.watchTask(ctx, t)
		}
	}
	if len(a.tasks) > 0 {
		a.log.Info("adopted running tasks after a restart", "tasks", len(a.tasks))
	}
	return nil
}

// listTimeout is the timeout of listing the runtime's tasks.
const listTimeout = 20 * time.Second

// list lists the tasks of the runtime.
func (a *Agent) list(ctx context.Context) ([]tasks.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, err := a.runtime.List(ctx)
	if err != nil {
		a.log.Warn("cannot list the runtime's tasks yet", "err", err)
	}
	return found, err
}

// adopt adds tasks without a record: those of a lost file, or orphans. They count as running; the
// first desired set decides whether they are wanted.
func (a *Agent) adopt(ctx context.Context, found []tasks.Found) {
	a.listed = true
	for _, f := range found {
		id := reconcile.ID{Job: cluster.JobID(f.ID.Job), Attempt: cluster.Attempt(f.ID.Attempt)}
		if a.tasks[id] != nil {
			continue
		}
		a.log.Warn("found an orphaned task", "job", id.Job, "attempt", id.Attempt, "running", f.Running)
		granted, _ := strconv.ParseUint(f.Labels[labelGranted], 10, 64) // absent or malformed: unknown
		t := newTask(&taskdb.Task{ID: id, Phase: reconcile.Started, Granted: granted}, nil)
		a.tasks[id] = t
		a.dirty[id] = true
		a.watchTask(ctx, t)
	}
	a.dropUnkillable()
	a.removeStaleScratch()
	a.removeStaleWork()
}

// taskID returns the runtime's name of a task.
func taskID(id reconcile.ID) tasks.TaskID {
	return tasks.TaskID{Job: uint64(id.Job), Attempt: uint32(id.Attempt)}
}

// bootID returns the identity of this boot of the kernel (random(4)).
func bootID() (string, error) {
	data, err := os.ReadFile(bootFile())
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
