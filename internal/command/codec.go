package command

import (
	"errors"
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrMalformed is wrapped by the errors of the Decode functions for bytes that no
// Encode function wrote.
var ErrMalformed = errors.New("malformed")

// ErrUnsupported is wrapped by the errors of the Decode functions for bytes that a
// newer version of Greylag wrote and this one must not guess at.
var ErrUnsupported = errors.New("written by a newer version of greylag")

// format is the form of everything encoded here; it is the first byte. It changes only when
// appended fields are not enough.
const format = 1

// Encode writes a command for the log: the format, the kind, the fields. Equal
// commands give equal bytes. O(size).
func Encode(c Command) []byte {
	w := codec.Writer(make([]byte, 0, 256))
	k := c.kind()
	head(&w, &k)
	fieldsOf(&w, c)
	return w.Written()
}

// Decode reads what Encode wrote. Hostile bytes give an error, never a panic, and
// never more memory than a small multiple of their length. O(size).
func Decode(data []byte) (Command, error) {
	r := codec.Reader(data)
	var k kind
	if err := head(&r, &k); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	c := blank(k)
	if c == nil {
		return nil, fmt.Errorf("command: %w: kind %d", ErrUnsupported, k)
	}
	fieldsOf(&r, c)
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("command: %w: %w", ErrMalformed, err)
	}
	return c, nil
}

// EncodeJob writes a job with its specification, for the archive. Equal jobs give
// equal bytes.
func EncodeJob(j *cluster.Job) []byte {
	w := codec.Writer(make([]byte, 0, 512))
	var k kind
	head(&w, &k)
	codec.Record(&w, j.Spec, SpecFields)
	codec.Record(&w, j, JobFields)
	return w.Written()
}

// DecodeJob reads what EncodeJob wrote, under the promises of Decode.
func DecodeJob(data []byte) (*cluster.Job, error) {
	r := codec.Reader(data)
	var k kind
	if err := head(&r, &k); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	j := &cluster.Job{Spec: &cluster.JobSpec{}}
	codec.Record(&r, j.Spec, SpecFields)
	codec.Record(&r, j, JobFields)
	if k != 0 {
		return nil, fmt.Errorf("job: %w: kind %d", ErrMalformed, k)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("job: %w: %w", ErrMalformed, err)
	}
	return j, nil
}

// head is the format and a kind: of command, of result, or 0.
func head(c *codec.Coder, k *kind) error {
	err := formField(c)
	codec.Uint(c, k)
	return err
}

// formField is the form of what follows. The error wraps ErrMalformed, ErrUnsupported or
// codec.ErrEarlier.
func formField(c *codec.Coder) error {
	first := [1]byte{codec.FormByte(format)}
	codec.Fixed(c, first[:])
	form, err := codec.FormOf(first[0])
	switch {
	case !c.Reading():
		return nil
	case errors.Is(err, codec.ErrEarlier):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case form > format:
		return fmt.Errorf("%w: format %d", ErrUnsupported, form)
	}
	return nil
}

// blank returns an empty command of the kind; nil for an unknown kind.
func blank(k kind) Command {
	switch k {
	case kindInit:
		return new(Init)
	case kindSubmitJobs:
		return new(SubmitJobs)
	case kindCancelJobs:
		return new(CancelJobs)
	case kindUpdateJobs:
		return new(UpdateJobs)
	case kindRegisterNode:
		return new(RegisterNode)
	case kindReportTasks:
		return new(ReportTasks)
	case kindSetLiveness:
		return new(SetLiveness)
	case kindUpdateNodes:
		return new(UpdateNodes)
	case kindCommitPlan:
		return new(CommitPlan)
	case kindTick:
		return new(Tick)
	case kindApplyPolicy:
		return new(ApplyPolicy)
	case kindCreateToken:
		return new(CreateToken)
	case kindUseToken:
		return new(UseToken)
	case kindPutBlob:
		return new(PutBlob)
	case kindEditAccounts:
		return new(EditAccounts)
	case kindSetTopology:
		return new(SetTopology)
	case kindChangeCredits:
		return new(ChangeCredits)
	case kindMeterJobs:
		return new(MeterJobs)
	case kindRecordMember:
		return new(RecordMember)
	case kindRetireMember:
		return new(RetireMember)
	case kindRestored:
		return new(Restored)
	case kindRecordCertificate:
		return new(RecordCertificate)
	case kindRevokeCertificates:
		return new(RevokeCertificates)
	case kindRotateCA:
		return new(RotateCA)
	}
	return blankOfUser(k)
}

// blankOfUser returns an empty command of a kind about steps, checkpoints, recurring jobs or secrets of users; nil
// for another kind.
func blankOfUser(k kind) Command {
	switch k {
	case kindCreateStep:
		return new(CreateStep)
	case kindSignalStep:
		return new(SignalStep)
	case kindAttachStep:
		return new(AttachStep)
	case kindSetCron:
		return new(SetCron)
	case kindUpdateCron:
		return new(UpdateCron)
	case kindRecordCron:
		return new(RecordCron)
	case kindSetSecret:
		return new(SetSecret)
	case kindDeleteSecrets:
		return new(DeleteSecrets)
	case kindResealSecrets:
		return new(ResealSecrets)
	case kindCommitCheckpoint:
		return new(CommitCheckpoint)
	case kindSetCheckpoint:
		return new(SetCheckpoint)
	case kindFenceNode:
		return new(FenceNode)
	case kindSetOffers:
		return new(SetOffers)
	case kindUpdateLeases:
		return new(UpdateLeases)
	case kindEndLeases:
		return new(EndLeases)
	}
	return nil
}

func fieldsOf(c *codec.Coder, cmd Command) {
	switch x := cmd.(type) {
	case *Init:
		codec.Record(c, x, initFields)
	case *SubmitJobs:
		codec.Record(c, x, submitFields)
	case *CancelJobs:
		codec.Record(c, x, cancelFields)
	case *UpdateJobs:
		codec.Record(c, x, updateFields)
	case *RegisterNode:
		codec.Record(c, x, registerFields)
	case *ReportTasks:
		codec.Record(c, x, reportFields)
	case *SetLiveness:
		codec.Record(c, x, livenessFields)
	case *UpdateNodes:
		codec.Record(c, x, updateNodesFields)
	case *CommitPlan:
		codec.Record(c, x, planFields)
	case *Tick:
		codec.Record(c, x, tickFields)
	case *ApplyPolicy:
		codec.Record(c, x, applyFields)
	case *CreateToken:
		codec.Record(c, x, createTokenFields)
	case *UseToken:
		codec.Record(c, x, useTokenFields)
	case *PutBlob:
		codec.Record(c, x, putBlobFields)
	case *EditAccounts:
		codec.Record(c, x, editAccountsFields)
	case *SetTopology:
		codec.Record(c, x, topologyFields)
	case *ChangeCredits:
		codec.Record(c, x, changeCreditsFields)
	case *MeterJobs:
		codec.Record(c, x, meterJobsFields)
	case *RecordMember:
		codec.Record(c, x, recordMemberFields)
	case *RetireMember:
		codec.Record(c, x, retireMemberFields)
	case *Restored:
		codec.Record(c, x, restoredFields)
	case *RecordCertificate:
		codec.Record(c, x, recordCertificateFields)
	case *RevokeCertificates:
		codec.Record(c, x, revokeCertificatesFields)
	case *RotateCA:
		codec.Record(c, x, rotateCAFields)
	default:
		fieldsOfUser(c, cmd)
	}
}

// fieldsOfUser codes the commands of blankOfUser.
func fieldsOfUser(c *codec.Coder, cmd Command) {
	switch x := cmd.(type) {
	case *CreateStep:
		codec.Record(c, x, createStepFields)
	case *SignalStep:
		codec.Record(c, x, signalStepFields)
	case *AttachStep:
		codec.Record(c, x, attachStepFields)
	case *SetCron:
		codec.Record(c, x, setCronFields)
	case *UpdateCron:
		codec.Record(c, x, updateCronFields)
	case *RecordCron:
		codec.Record(c, x, recordCronFields)
	case *SetSecret:
		codec.Record(c, x, setSecretFields)
	case *DeleteSecrets:
		codec.Record(c, x, deleteSecretsFields)
	case *ResealSecrets:
		codec.Record(c, x, resealSecretsFields)
	case *CommitCheckpoint:
		codec.Record(c, x, commitCheckpointFields)
	case *SetCheckpoint:
		codec.Record(c, x, setCheckpointFields)
	case *FenceNode:
		codec.Record(c, x, fenceNodeFields)
	case *SetOffers:
		codec.Record(c, x, setOffersFields)
	case *UpdateLeases:
		codec.Record(c, x, updateLeasesFields)
	case *EndLeases:
		codec.Record(c, x, endLeasesFields)
	}
}
