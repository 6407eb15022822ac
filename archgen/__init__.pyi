"""Types of the public names; see `archgen.api`."""

from archgen.api import Arch as Arch
from archgen.api import AssemblyError as AssemblyError
from archgen.api import Metrics as Metrics
from archgen.api import Program as Program
from archgen.api import Running as Running
from archgen.api import SourceModel as SourceModel
from archgen.api import Study as Study
from archgen.api import StudyComparison as StudyComparison
from archgen.api import StudyError as StudyError
from archgen.api import StudyOptions as StudyOptions
from archgen.api import Trace as Trace
from archgen.api import compare as compare
from archgen.api import compile_model as compile_model
from archgen.api import execute as execute
from archgen.api import explore as explore
from archgen.api import load_arch as load_arch
from archgen.api import load_model as load_model
from archgen.api import measure as measure
from archgen.api import open_study as open_study
from archgen.api import read_assembly as read_assembly
from archgen.api import sensitivity as sensitivity
from archgen.api import simulate as simulate
from archgen.api import smallest_machine as smallest_machine
from archgen.api import states as states
from archgen.api import study as study
from archgen.api import write_assembly as write_assembly
