package cluster

import "fmt"

// Reason is the code for why a job is pending or why it ended, in squeue's words where squeue has
// one.
type Reason uint8

// The reasons.
const (
	ReasonNone Reason = iota
	ReasonPriority
	ReasonResources
	ReasonDependency
	ReasonDependencyNeverSatisfied
	ReasonBeginTime
	ReasonHeldUser
	ReasonHeldAdmin
	ReasonArrayTaskLimit
	ReasonPartitionDown
	ReasonPartitionNodeLimit
	ReasonPartitionTimeLimit
	ReasonReqNodeNotAvail
	ReasonBadConstraints
	ReasonLaunchFailed
	ReasonRequeueLimit
	ReasonNonZeroExitCode
	ReasonTimeLimit
	ReasonOutOfMemory
	ReasonNodeFail
	ReasonCancelled
	ReasonImageFailed
	ReasonDeadline
	ReasonSystemFailure
	ReasonReservation
	ReasonAccount
	ReasonAssocGrpGRES
	ReasonAssocGrpCPU
	ReasonAssocGrpMem
	ReasonAssocGrpNode
	ReasonAssocGrpLicence
	ReasonAssocGrpJobs
	ReasonAssocGrpWall
	ReasonAssocGrpTRESMins
	ReasonAssocGrpTRESRunMins
	ReasonAssocMaxTRESPerJob
	ReasonAssocMaxJobs
	ReasonAssocMaxWall
	ReasonAssocMaxTRESMinsPerJob
	ReasonQOSGrpGRES
	ReasonQOSGrpCPU
	ReasonQOSGrpMem
	ReasonQOSGrpNode
	ReasonQOSGrpLicence
	ReasonQOSGrpJobs
	ReasonQOSGrpTRESRunMins
	ReasonQOSMaxTRESPerJob
	ReasonQOSMaxTRESMinsPerJob
	ReasonQOSMaxJobsPerUser
	ReasonQOSMaxJobsPerAccount
	ReasonQOSMaxTRESPerUser
	ReasonQOSMaxTRESPerAccount
	ReasonLicenses
	ReasonCredits
	ReasonPreempted
	ReasonAssocMaxTRESPerNode
	ReasonQOSMaxTRESPerNode
	ReasonQOSMinTRES
	ReasonInvalidQOS
	ReasonAccountNotAllowed
	ReasonCheckpoint
	ReasonFencing
	ReasonOutputLimit
	ReasonInactiveLimit
	ReasonCredentialsRefused
	ReasonReclaimed
	ReasonStageOut
	maxReason = ReasonStageOut
)

var reasonNames = [...]string{
	ReasonNone: "None", ReasonPriority: "Priority", ReasonResources: "Resources",
	ReasonDependency: "Dependency", ReasonDependencyNeverSatisfied: "DependencyNeverSatisfied",
	ReasonBeginTime: "BeginTime", ReasonHeldUser: "JobHeldUser", ReasonHeldAdmin: "JobHeldAdmin",
	ReasonArrayTaskLimit: "JobArrayTaskLimit", ReasonPartitionDown: "PartitionDown",
	ReasonPartitionNodeLimit: "PartitionNodeLimit", ReasonPartitionTimeLimit: "PartitionTimeLimit",
	ReasonReqNodeNotAvail: "ReqNodeNotAvail", ReasonBadConstraints: "BadConstraints",
	ReasonLaunchFailed: "JobLaunchFailure", ReasonRequeueLimit: "JobHoldMaxRequeue",
	ReasonNonZeroExitCode: "NonZeroExitCode", ReasonTimeLimit: "TimeLimit",
	ReasonOutOfMemory: "OutOfMemory", ReasonNodeFail: "NodeFail", ReasonCancelled: "Cancelled",
	ReasonImageFailed: "ImageFailed", ReasonDeadline: "DeadLine", ReasonSystemFailure: "SystemFailure",
	ReasonReservation:            "Reservation",
	ReasonLicenses:               "Licenses",
	ReasonCredits:                "InsufficientCredits",
	ReasonAccount:                "InvalidAccount",
	ReasonAssocGrpGRES:           "AssocGrpGRES",
	ReasonAssocGrpCPU:            "AssocGrpCpuLimit",
	ReasonAssocGrpMem:            "AssocGrpMemLimit",
	ReasonAssocGrpNode:           "AssocGrpNodeLimit",
	ReasonAssocGrpLicence:        "AssocGrpLicense",
	ReasonAssocGrpJobs:           "AssocGrpJobsLimit",
	ReasonAssocGrpWall:           "AssocGrpWallLimit",
	ReasonAssocGrpTRESMins:       "AssocGrpGRESMinutes",
	ReasonAssocGrpTRESRunMins:    "AssocGrpGRESRunMinutes",
	ReasonAssocMaxTRESPerJob:     "AssocMaxGRESPerJob",
	ReasonAssocMaxJobs:           "AssocMaxJobsLimit",
	ReasonAssocMaxWall:           "AssocMaxWallDurationPerJobLimit",
	ReasonAssocMaxTRESMinsPerJob: "AssocMaxGRESMinutesPerJob",
	ReasonQOSGrpGRES:             "QOSGrpGRES",
	ReasonQOSGrpCPU:              "QOSGrpCpuLimit",
	ReasonQOSGrpMem:              "QOSGrpMemLimit",
	ReasonQOSGrpNode:             "QOSGrpNodeLimit",
	ReasonQOSGrpLicence:          "QOSGrpLicense",
	ReasonQOSGrpJobs:             "QOSGrpJobsLimit",
	ReasonQOSGrpTRESRunMins:      "QOSGrpGRESRunMinutes",
	ReasonQOSMaxTRESPerJob:       "QOSMaxGRESPerJob",
	ReasonQOSMaxTRESMinsPerJob:   "QOSMaxGRESMinutesPerJob",
	ReasonQOSMaxJobsPerUser:      "QOSMaxJobsPerUserLimit",
	ReasonQOSMaxJobsPerAccount:   "MaxJobsPerAccount",
	ReasonQOSMaxTRESPerUser:      "QOSMaxGRESPerUser",
	ReasonQOSMaxTRESPerAccount:   "MaxGRESPerAccount",
	ReasonPreempted:              "Preempted",
	ReasonAssocMaxTRESPerNode:    "AssocMaxGRESPerNode",
	ReasonQOSMaxTRESPerNode:      "QOSMaxGRESPerNode",
	ReasonQOSMinTRES:             "QOSMinGRES",
	ReasonInvalidQOS:             "InvalidQOS",
	ReasonAccountNotAllowed:      "AccountNotAllowed",
	ReasonCheckpoint:             "CheckpointDamaged",
	ReasonFencing:                "NodeFencing",
	ReasonOutputLimit:            "OutputLimit",
	ReasonInactiveLimit:          "InactiveLimit",
	ReasonCredentialsRefused:     "CredentialsRefused",
	ReasonReclaimed:              "Reclaimed",
	ReasonStageOut:               "StageOutFailed",
}

// String returns the code as scripts read it.
func (r Reason) String() string {
	if r > maxReason {
		return fmt.Sprintf("Reason(%d)", uint8(r))
	}
	return reasonNames[r]
}
