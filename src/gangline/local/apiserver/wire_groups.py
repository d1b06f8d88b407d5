"""Fields of the messages of meta/v1 and of the groups beside core/v1; the notation is explained in
``wire_types``.

Source: the published Kubernetes API types, v1.35.
"""

from __future__ import annotations

META = """
Condition: type=1s! status=2s! observedGeneration=3i lastTransitionTime=4T reason=5s! message=6s!
DeleteOptions: gracePeriodSeconds=1i? preconditions=2Preconditions? orphanDependents=3b?
  propagationPolicy=4s? dryRun=5*s ignoreStoreReadErrorWithClusterBreakingPotential=6b?
FieldSelectorRequirement: key=1s! operator=2s! values=3*s
LabelSelector: matchLabels=1%s matchExpressions=2*LabelSelectorRequirement
LabelSelectorRequirement: key=1s! operator=2s! values=3*s
ManagedFieldsEntry: manager=1s operation=2s apiVersion=3s time=4T? fieldsType=6s fieldsV1=7F?
  subresource=8s
ObjectMeta: name=1s generateName=2s namespace=3s selfLink=4s uid=5s resourceVersion=6s generation=7i
  creationTimestamp=8T deletionTimestamp=9T? deletionGracePeriodSeconds=10i? labels=11%s annotations=12%s
  ownerReferences=13*OwnerReference@uid finalizers=14*s@ managedFields=17*ManagedFieldsEntry
OwnerReference: apiVersion=5s! kind=1s! name=3s! uid=4s! controller=6b? blockOwnerDeletion=7b?
Preconditions: uid=1s? resourceVersion=2s?
"""

GROUPS = """
BoundObjectReference: kind=1s apiVersion=2s name=3s uid=4s
Endpoint: addresses=1*s conditions=2EndpointConditions hostname=3s? targetRef=4ObjectReference?
  deprecatedTopology=5%s nodeName=6s? zone=7s? hints=8EndpointHints?
EndpointConditions: ready=1b? serving=2b? terminating=3b?
EndpointHints: forZones=1*ForZone forNodes=2*ForNode
EndpointSlice: metadata=1ObjectMeta addressType=4s! endpoints=2*Endpoint ports=3*SlicePort
Eviction: metadata=1ObjectMeta deleteOptions=2DeleteOptions?
FieldSelectorAttributes: rawSelector=1s requirements=2*FieldSelectorRequirement
ForNode: name=1s!
ForZone: name=1s!
Job: metadata=1ObjectMeta spec=2JobSpec status=3JobStatus
JobCondition: type=1s! status=2s! lastProbeTime=3T lastTransitionTime=4T reason=5s message=6s
JobSpec: parallelism=1i? completions=2i? activeDeadlineSeconds=3i? podFailurePolicy=11PodFailurePolicy?
  successPolicy=16SuccessPolicy? backoffLimit=7i? backoffLimitPerIndex=12i? maxFailedIndexes=13i?
  selector=4LabelSelector? manualSelector=5b? template=6PodTemplateSpec ttlSecondsAfterFinished=8i?
  completionMode=9s? suspend=10b? podReplacementPolicy=14s? managedBy=15s?
JobStatus: conditions=1*JobCondition@type startTime=2T? completionTime=3T? active=4i succeeded=5i
  failed=6i terminating=11i? completedIndexes=7s failedIndexes=10s?
  uncountedTerminatedPods=8UncountedTerminatedPods? ready=9i?
LabelSelectorAttributes: rawSelector=1s requirements=2*LabelSelectorRequirement
Lease: metadata=1ObjectMeta spec=2LeaseSpec
LeaseSpec: holderIdentity=1s? leaseDurationSeconds=2i? acquireTime=3M? renewTime=4M? leaseTransitions=5i?
  strategy=6s? preferredHolder=7s?
LocalSubjectAccessReview: metadata=1ObjectMeta spec=2SubjectAccessReviewSpec
  status=3SubjectAccessReviewStatus
NonResourceAttributes: path=1s verb=2s
NonResourceRule: verbs=1*s nonResourceURLs=2*s
PodFailurePolicy: rules=1*PodFailurePolicyRule
PodFailurePolicyOnExitCodesRequirement: containerName=1s? operator=2s! values=3*i
PodFailurePolicyOnPodConditionsPattern: type=1s! status=2s!
PodFailurePolicyRule: action=1s! onExitCodes=2PodFailurePolicyOnExitCodesRequirement?
  onPodConditions=3*PodFailurePolicyOnPodConditionsPattern
PriorityClass: metadata=1ObjectMeta value=2i! globalDefault=3b description=4s preemptionPolicy=5s?
ResourceAttributes: namespace=1s verb=2s group=3s version=4s resource=5s subresource=6s name=7s
  fieldSelector=8FieldSelectorAttributes? labelSelector=9LabelSelectorAttributes?
ResourceRule: verbs=1*s apiGroups=2*s resources=3*s resourceNames=4*s
Scale: metadata=1ObjectMeta spec=2ScaleSpec status=3ScaleStatus
ScaleSpec: replicas=1i
ScaleStatus: replicas=1i! selector=2s
SelfSubjectAccessReview: metadata=1ObjectMeta spec=2SelfSubjectAccessReviewSpec
  status=3SubjectAccessReviewStatus
SelfSubjectAccessReviewSpec: resourceAttributes=1ResourceAttributes?
  nonResourceAttributes=2NonResourceAttributes?
SelfSubjectReview: metadata=1ObjectMeta status=2SelfSubjectReviewStatus
SelfSubjectReviewStatus: userInfo=1UserInfo
SelfSubjectRulesReview: metadata=1ObjectMeta spec=2SelfSubjectRulesReviewSpec
  status=3SubjectRulesReviewStatus
SelfSubjectRulesReviewSpec: namespace=1s
SlicePort: name=1s? protocol=2s? port=3i? appProtocol=4s?
SubjectAccessReview: metadata=1ObjectMeta spec=2SubjectAccessReviewSpec status=3SubjectAccessReviewStatus
SubjectAccessReviewSpec: resourceAttributes=1ResourceAttributes?
  nonResourceAttributes=2NonResourceAttributes? user=3s groups=4*s extra=5%L uid=6s
SubjectAccessReviewStatus: allowed=1b! denied=4b reason=2s evaluationError=3s
SubjectRulesReviewStatus: resourceRules=1*ResourceRule nonResourceRules=2*NonResourceRule incomplete=3b!
  evaluationError=4s
SuccessPolicy: rules=1*SuccessPolicyRule
SuccessPolicyRule: succeededIndexes=1s? succeededCount=2i?
TokenRequest: metadata=1ObjectMeta spec=2TokenRequestSpec status=3TokenRequestStatus
TokenRequestSpec: audiences=1*s expirationSeconds=4i? boundObjectRef=3BoundObjectReference?
TokenRequestStatus: token=1s! expirationTimestamp=2T
TokenReview: metadata=1ObjectMeta spec=2TokenReviewSpec status=3TokenReviewStatus
TokenReviewSpec: token=1s audiences=2*s
TokenReviewStatus: authenticated=1b user=2UserInfo audiences=4*s error=3s
UncountedTerminatedPods: succeeded=1*s failed=2*s
UserInfo: username=1s uid=2s groups=3*s extra=4%L
"""
